package redact_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

func TestWhatIsOrdinaryIsNoSecret(t *testing.T) {
	for value, name := range map[string]string{
		"cn-hangzhou": "ALIYUN_REGION", "us-east-1": "AWS_REGION", "true": "DEBUG", "production": "MODE", "8443": "PORT",
		"https://sandbox.eu-west2.example.com:8443/v1": "ENDPOINT", "": "EMPTY", "python 3": "KIND", "10.0.0.1": "HOST",
	} {
		assert.Check(t, redact.Ordinary(name, value), "%s=%s", name, value)
	}
	for value, name := range map[string]string{
		"europe": "API_KEY", "hunter2": "DB_PASSWORD", "letmein": "ACCESS_TOKEN", "true": "CLIENT_SECRET",
		"e2b_0a1b2c3d4e5f": "E2B", "AKIAIOSFODNN7EXAMPLE": "ID", "https://me:word@example.com": "ENDPOINT",
		"correcthorsebatterystaple": "PHRASE", "0123456789": "NUMBER", "two\nlines": "TEXT", "q1w2e3r4": "WORD",
		"https://example.com/?sig=abc": "LINK",
	} {
		assert.Check(t, !redact.Ordinary(name, value), "%s=%s", name, value)
	}
}
