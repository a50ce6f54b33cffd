provider "full" {
  pool_size = 1e5000 * 1e5001
}
