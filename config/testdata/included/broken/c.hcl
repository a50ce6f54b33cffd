provider "x" {
  api_key "hunter2"
}
