"""The Cursus protocol as a sans-I/O codec: frames, batches, commands, replies."""
