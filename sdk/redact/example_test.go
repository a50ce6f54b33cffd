package redact_test

import (
	"encoding/base64"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

// A service quotes the token in its error, in one form or another. The agent does not
// get to see it.
func ExampleRedactor() {
	schema := sdk.Schema{
		{Name: "endpoint", Type: sdk.TypeString},
		{Name: "token", Type: sdk.TypeString, Secret: true},
	}
	settings := sdk.Settings{"endpoint": "https://boxes.example", "token": "hunter2hunter2"}
	secrets := redact.New(redact.Secrets(schema, settings)...)

	fmt.Println(secrets.Text("https://boxes.example refuses hunter2hunter2"))
	fmt.Println(secrets.Text("Basic " + base64.StdEncoding.EncodeToString([]byte("hunter2hunter2"))))
	err := secrets.Error(sdk.Errorf(sdk.CodeConnectionFailed, "bad token hunter2hunter2"))
	fmt.Println(err, sdk.CodeOf(err))
	// Output:
	// https://boxes.example refuses (secret)
	// Basic (secret)=
	// SB003: bad token (secret) SB003
}
