"""Roots and Docker images with a fixed toolchain: how they are built, found and looked into."""
