package main

import (
	"os"

	"github.com/sandbox-broker/sandbox-broker/sdk/localfiles"
)

// files are those of all instances. The SDK keeps the contract of sdk.Files and its
// neighbours; it wants to know where they are.
func (p *Provider) files() *localfiles.Files {
	return localfiles.New(localfiles.Options{Directory: func(instanceID string) (string, error) {
		if _, err := p.store.load(instanceID); err != nil {
			return "", err
		}
		kept := p.store.kept(instanceID)
		if _, err := os.Stat(kept); err != nil {
			return "", errNoInstance // it was destroyed a moment ago
		}
		return kept, nil
	}})
}
