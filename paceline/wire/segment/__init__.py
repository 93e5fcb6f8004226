"""The segment protocol, seed dialect: messages, partial messages, append blocks."""
