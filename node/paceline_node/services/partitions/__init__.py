"""This node's partitions, opened for those who may write to them or read them."""
