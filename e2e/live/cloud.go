package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// cloud says how a provider is reached, by variables of the environment.
type cloud struct {
	required, optional map[string]string // settings, by the variables that hold them
	fixed              map[string]any
	secret             []string // variables that no report may show
	account            []string // variables that say whose sandboxes there are, and where
	currency           string
	guess              float64 // of a second of a sandbox, where nobody says what it costs
	guessed            string  // how
}

func cloudOf(provider string) (cloud, error) {
	switch provider {
	case "e2b":
		return cloud{
			required: map[string]string{"E2B_API_KEY": "api_key"},
			optional: map[string]string{"E2B_DOMAIN": "domain", "E2B_API_URL": "api_url", "E2B_SANDBOX_URL": "sandbox_url"},
			fixed:    map[string]any{"timeout": "2m"},
			secret:   []string{"E2B_API_KEY"},
			account:  []string{"E2B_API_KEY", "E2B_DOMAIN", "E2B_API_URL"},
			currency: "USD", guess: 0.0001, guessed: "a guess on the high side for 2 CPUs and 2 GiB",
		}, nil
	case "daytona":
		return cloud{
			required: map[string]string{"DAYTONA_API_KEY": "api_key"},
			optional: map[string]string{"DAYTONA_API_URL": "api_url", "DAYTONA_TARGET": "target"},
			fixed:    map[string]any{"auto_stop": "2m"},
			secret:   []string{"DAYTONA_API_KEY"},
			account:  []string{"DAYTONA_API_KEY", "DAYTONA_API_URL"},
			currency: "USD", guess: 0.0001, guessed: "a guess on the high side for 1 CPU and 1 GiB: the plugin names no price",
		}, nil
	case "aliyun":
		return cloud{
			required: map[string]string{"AGENTRUN_ACCESS_KEY_ID": "access_key_id", "AGENTRUN_ACCESS_KEY_SECRET": "access_key_secret", "AGENTRUN_ACCOUNT_ID": "account_id"},
			optional: map[string]string{
				"AGENTRUN_SECURITY_TOKEN": "security_token", "AGENTRUN_REGION": "region", "AGENTRUN_TEMPLATE_NAME": "template_name",
				"AGENTRUN_CONTROL_ENDPOINT": "control_endpoint", "AGENTRUN_DATA_ENDPOINT": "data_endpoint",
			},
			fixed:    map[string]any{"idle_timeout": "2m"},
			secret:   []string{"AGENTRUN_ACCESS_KEY_ID", "AGENTRUN_ACCESS_KEY_SECRET", "AGENTRUN_SECURITY_TOKEN", "AGENTRUN_ACCOUNT_ID"},
			account:  []string{"AGENTRUN_ACCOUNT_ID", "AGENTRUN_REGION", "AGENTRUN_CONTROL_ENDPOINT", "AGENTRUN_DATA_ENDPOINT"},
			currency: "CNY", guess: 0.0005, guessed: "a guess on the high side for 2 CPUs and 4 GiB, which a template of your own may not have: the plugin names no price",
		}, nil
	default:
		return cloud{}, fmt.Errorf("there is no live run for %q: choose PROVIDER=e2b, PROVIDER=daytona or PROVIDER=aliyun", provider)
	}
}

// place tells one account at one service from others, and shows nothing of it.
func (c cloud) place() string {
	sum := sha256.New()
	for _, name := range c.account {
		fmt.Fprintf(sum, "%s=%q\n", name, os.Getenv(name))
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// missing are the variables without which nothing can be run.
func (c cloud) missing() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.required)), func(name string) bool { return os.Getenv(name) != "" })
}

func (c cloud) settings() map[string]any {
	values := map[string]any{}
	maps.Copy(values, c.fixed)
	for _, variables := range []map[string]string{c.required, c.optional} {
		for name, setting := range variables {
			if value := os.Getenv(name); value != "" {
				values[setting] = value
			}
		}
	}
	return values
}

// block is the provider block; values stay in the environment.
func (c cloud) block(provider string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "provider %q {\n", provider)
	for setting, value := range c.fixed {
		fmt.Fprintf(&b, "  %s = %q\n", setting, value)
	}
	for _, variables := range []map[string]string{c.required, c.optional} {
		for name, setting := range variables {
			if os.Getenv(name) != "" {
				fmt.Fprintf(&b, "  %s = env(%q)\n", setting, name)
			}
		}
	}
	b.WriteString("}\n")
	return b.String()
}

func (c cloud) secrets() []string {
	var values []string
	for _, name := range c.secret {
		if value := os.Getenv(name); value != "" {
			values = append(values, value)
		}
	}
	return values
}
