provider "full" {}
