"""The JSON documents that operators' programs read: made here, and the same wherever they are asked
for, by ``paceline ... --output json`` or at ``/api/...`` of a node."""
