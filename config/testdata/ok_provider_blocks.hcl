provider "full" {
  # Before.
  auth {
    password = env("API_KEY")
  }
  region = "eu"

  rules {
    ports = [80, 443]
    limit {
      rate = 2.5
    }
  }
  rules {}
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
