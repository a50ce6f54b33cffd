package config_test

import (
	"fmt"
	"os"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const exampleTenant = `
tenant "acme" {
  token_sha256 = ["46b42b4229cd7a39c564e780bb665a8bde4fdf722007e8473f167fe53ed4b995"]
}
`

// A configuration that need not be a file yet. What the blocks leave out has its
// defaults.
func ExampleParse() {
	cfg, diags := config.Parse("sandbox.hcl", []byte(`
limits {
  max_timeout = "2m"
}
provider "boxes" {
  cost_per_second = 0.0001
}
`+exampleTenant), config.WithPluginDir("/usr/lib/sandbox-broker/plugins"))

	fmt.Println(diags.HasErrors())
	fmt.Println(cfg.Listen, cfg.ActiveProvider, cfg.Provider("boxes").CostPerSecond)
	fmt.Println(cfg.Limits.MaxTimeout, cfg.Tenants[0].Name, cfg.Quota.MaxConcurrent)
	// Output:
	// false
	// 127.0.0.1:9385 boxes 0.0001
	// 2m0s acme 10
}

// All mistakes are found at once, each with its place.
func ExampleDiagnostics() {
	_, diags := config.Parse("sandbox.hcl", []byte(`listen = "nowhere"
provider "boxes" {}
tenant "acme" {}
`))
	for _, d := range diags {
		fmt.Printf("%s at %s:%d, %s: %s (%s)\n", d.Severity, d.File, d.Start.Line, d.Within, d.Summary, d.Setting)
	}
	// Output:
	// error at sandbox.hcl:1, : Invalid value ()
	// error at sandbox.hcl:3, tenant "acme": Missing setting (token_sha256)
}

// For people they are shown with the line that they are about. The value of a setting that
// nobody knows is hidden, for it may be a secret.
func ExampleDiagnostics_Write() {
	_, diags := config.Parse("sandbox.hcl", []byte("lisen = \":9385\"\nprovider \"boxes\" {}\n"+exampleTenant))
	if err := diags.Write(os.Stdout, config.Style{Width: 80}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// Error: Unknown setting
	//   at sandbox.hcl:1:1
	//
	//     1 | lisen = (hidden)
	//       | ^^^^^
	//
	//   There is no setting "lisen" here. Did you mean "listen"?
}

var boxesSettings = sdk.Schema{
	{Name: "endpoint", Type: sdk.TypeString, Required: true},
	{Name: "token", Type: sdk.TypeString, Required: true, Secret: true},
	{Name: "pool_size", Type: sdk.TypeInteger, Default: int64(4), Min: sdk.Bound(0)},
}

// What a plugin takes from its block is known when the plugin has said what that is.
func ExampleProvider_Settings() {
	cfg, _ := config.Parse("sandbox.hcl", []byte(`provider "boxes" {
  endpoint  = "https://boxes.example"
  token     = "t"
  pool_size = -1
}
`+exampleTenant))
	_, diags := cfg.Provider("boxes").Settings(boxesSettings)
	for _, d := range diags {
		fmt.Printf("%d:%d %s: %s\n", d.Start.Line, d.Start.Column, d.Setting, d.Detail)
	}
	// Output: 4:15 pool_size: pool_size must be at least 0.
}

// A value from the environment is known by where it comes from, and is not to be shown.
func ExampleWithEnv() {
	environment := map[string]string{"BOXES_TOKEN": "hunter2hunter2"}
	cfg, diags := config.Parse("sandbox.hcl", []byte(`provider "boxes" {
  endpoint = "https://boxes.example"
  token    = env("BOXES_TOKEN")
}
`+exampleTenant), config.WithEnv(func(name string) (string, bool) {
		value, set := environment[name]
		return value, set
	}))
	fmt.Println(diags.HasErrors())
	boxes := cfg.Provider("boxes")
	settings, _ := boxes.Settings(boxesSettings)
	fmt.Println(settings["token"] == environment["BOXES_TOKEN"], len(boxes.Secrets()))
	for _, setting := range []string{"endpoint", "token", "pool_size"} {
		origin := boxes.Origin(setting)
		fmt.Println(setting, origin.Kind, origin.Name, origin.Sensitive)
	}
	// Output:
	// false
	// true 1
	// endpoint literal  false
	// token env BOXES_TOKEN true
	// pool_size default  false
}

// A plugin that refuses its settings names one of them. The place is that in the file.
func ExampleProvider_Diagnose() {
	cfg, _ := config.Parse("sandbox.hcl", []byte(`provider "boxes" {
  endpoint = "https://boxes.example"
  token    = "t"
}
`+exampleTenant))
	refused := sdk.FieldErrorf(sdk.CodeInvalidConfig, "endpoint", "there is no such host")
	for _, d := range cfg.Provider("boxes").Diagnose(refused, boxesSettings) {
		fmt.Printf("%d:%d %s: %s\n", d.Start.Line, d.Start.Column, d.Within, d.Detail)
	}
	// Output: 2:14 provider "boxes": SB002: endpoint: there is no such host
}

// A file as everybody lays it out. Comments stay where they are.
func ExampleFormat() {
	text, diags := config.Format("sandbox.hcl", []byte("provider   \"boxes\" {\npool_size=4 # ready\n    token = \"t\"\n}\n"))
	fmt.Println(diags.HasErrors())
	fmt.Print(string(text))
	// Output:
	// false
	// provider "boxes" {
	//   pool_size = 4 # ready
	//   token     = "t"
	// }
}

// Blocks are what a form or a generator for configurations is made of.
func ExampleBlocks() {
	for _, block := range config.Blocks() {
		if field, ok := block.Settings.Field("max_timeout"); ok {
			fmt.Println(block.Type, field.Name, field.Type, field.Default)
		}
	}
	// Output: limits max_timeout duration 10m0s
}
