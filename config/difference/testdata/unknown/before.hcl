provider "other" {
  plugin          = "a-plugin"
  cost_per_second = 0.5
  anything        = "s3cret-anything"
  list            = ["s3cret", "${upper("s3cret")}-s3cret"]
  block {
    text = "s3cret"
  }
}

nonsense "x" {
  a = "s3cret"
}

log {
  level = "b" == "a" ? "info" : "debug"
  what  = "s3cret"
}
