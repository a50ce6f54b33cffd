package providertest_test

import (
	"context"
	"fmt"
	"regexp"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// begun is a provider of which little is written yet.
type begun struct{ sdk.Provider }

func (begun) Describe() sdk.Description {
	return sdk.Description{
		Name: "begun", Version: "0.1.0", Summary: "A beginning.",
		Languages:    []sdk.Language{sdk.Python},
		Templates:    []sdk.Template{{Name: "python", Languages: []sdk.Language{sdk.Python}}},
		Capabilities: []sdk.Capability{sdk.CapabilityArtifacts},
	}
}

// Interrupt is the whole of an interface, so that the provider has its capability.
func (begun) Interrupt(context.Context, string, string) error {
	return sdk.Errorf(sdk.CodeNotFound, "no such execution")
}

// Some cases can be run from the first day on. A capability is claimed by having its
// methods; artifacts alone are listed.
func ExampleVerify() {
	factory := func(hclog.Logger) sdk.Provider { return begun{} }
	report := providertest.Verify(context.Background(), providertest.InProcess(factory),
		providertest.WithOnly(regexp.MustCompile(`^description/.*(capabilities|templates)`)))
	for _, one := range report.Cases {
		fmt.Println(one.Case, one.Status)
	}
	fmt.Println(report.Capabilities)
	// Output:
	// description/it offers templates, each once passed
	// description/templates list languages that it offers passed
	// description/it claims capabilities that exist, each once passed
	// [artifacts interrupt]
}
