provider "full" {}

tenant "a" {
  token_sha256 = []
}

tenant "b" {
  token_sha256 = ["111111111111111111111111111111111111111111111111111111111111111", "gggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggg"]
}

tenant "c" {
  token_sha256 = [
    "2222222222222222222222222222222222222222222222222222222222222222",
    "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
    "CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC",
  ]
}

tenant "d" {
  token_sha256 = ["2222222222222222222222222222222222222222222222222222222222222222"]
}

tenant "e" {
  token_sha256 = "3333333333333333333333333333333333333333333333333333333333333333"
}

tenant "f" {}

tenant "g" {
  token_sha256 = ["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
}
