"""Root file systems and Docker images with a fixed toolchain: built, found, inspected."""
