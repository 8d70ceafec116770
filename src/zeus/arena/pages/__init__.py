"""Pages of the arena and of the board, in the frame of the server's pages."""
