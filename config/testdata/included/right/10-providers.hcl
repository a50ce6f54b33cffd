# Relative paths start here, also those of file().
state = "state"

provider "full" {
  api_key = file("../../secrets/key")
}

provider "other" {
  plugin = "full"
}

provider "third" {
  plugin = "full"
}
