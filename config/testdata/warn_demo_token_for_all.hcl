listen = ":9385"

provider "full" {}

tenant "demo" {
  token_sha256 = ["7c43ef5ae21d43ce2743f770c68e24def1a43ee2f416d2438410c8af7af2ff2c"]
}
