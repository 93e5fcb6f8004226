"""What operators ask and change besides topics: users, ACLs, roles, states of nodes."""
