"""What is computed in another way on another device, with the plain version of each."""
