# Sandboxes of Aliyun AgentRun: copy this to /etc/sandbox-broker/conf.d, for root and the
# group sandbox-broker alone to read. The file of the secret belongs to root and that group too.
provider "aliyun" {
  access_key_id     = "LTAI5tExampleOfAnID"
  access_key_secret = file("/etc/sandbox-broker/aliyun.secret")
  account_id        = "1234567890123456"
  region            = "cn-hangzhou"
}
