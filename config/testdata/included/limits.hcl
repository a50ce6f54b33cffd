limits {
  default_timeout = "7s"
}
