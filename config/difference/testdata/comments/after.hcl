provider "e2b" {
  # api_key = "s3cret-that-was"
  // pin = s3cret
  api_key = "s3cret-of-e2b-1234" /* it was "s3cret" and
     s3cret-of-e2b-1234 = s3cret before */
  region  = "eu" # not s3cret-of-e2b-1234
}
