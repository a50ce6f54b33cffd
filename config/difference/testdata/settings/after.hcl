# What this broker does.
listen = "127.0.0.1:9385"

provider "e2b" {
  region  = "eu"
  api_key = "s3cret-of-new-1234" # as of today
  headers = { "X-Token" = "s3cret-header-5678", plain = "s3c" }
  pin     = sealed("sb1:00000000:s3cretsealed")
  size    = 4
  auth {
    user     = "me"
    password = <<EOT
s3cret line one
s3cret line 2
EOT
  }
}

tenant "acme" {
  token_sha256 = ["56b42b4229cd7a39c564e780bb665a8bde4fdf722007e8473f167fe53ed4b995"]
  quota {
    max_instances = 4
  }
}

audit {
  webhook       = env("SIEM", "https://s3cret.example.com/in")
  webhook_token = "s3cret-of-siem-9999"
  max_mb        = 128
}

front_door "mcp" {
  listen = "127.0.0.1:9401"
}
