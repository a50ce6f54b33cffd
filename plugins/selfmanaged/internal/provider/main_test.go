package provider

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimStateDir) != "" {
		victim()
		return
	}
	if text := os.Getenv(hostVariable); text != "" {
		configureOnHost(text)
		return
	}
	goleak.VerifyTestMain(m)
}
