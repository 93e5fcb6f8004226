"""What listeners may ask of a broker, in no protocol's words."""
