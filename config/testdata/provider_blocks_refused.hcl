provider "full" {
  auth "hunter2" {
    password = "hunter2"
  }
  rules {
    limit {
      deep {
        deeper {
          key = "hunter2"
        }
      }
    }
  }
  plugin {
    listen = "hunter2"
  }
  region = "eu"
  region {
    key = "hunter2"
  }
  auth {
    password = nothing
  }
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
