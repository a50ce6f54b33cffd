provider "other" {
  plugin          = "b-plugin"
  cost_per_second = 0.5
  anything        = file("keys/other")
  list            = ["s3cret", "${upper("s3cret")}-s3cret"]
  block {
    text = "s3cret2"
  }
}

nonsense "x" {
  a = true
}

log {
  level = "info"
  what  = env("WHAT")
}
