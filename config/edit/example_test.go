package edit_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-broker/sandbox-broker/config/edit"
)

// A setting is changed and a token added; everything else stays.
func Example() {
	dir, err := os.MkdirTemp("", "edit")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "sandbox.hcl")
	err = os.WriteFile(path, []byte(`provider "self_managed" {
  pool_size = 4 # sandboxes kept ready
}

# Ask Ada.
tenant "acme" {
  token_sha256 = [
    "46b42b4229cd7a39c564e780bb665a8bde4fdf722007e8473f167fe53ed4b995", # in use
  ]
}
`), 0o600)
	if err != nil {
		panic(err)
	}

	document, err := edit.Open(path)
	if err != nil {
		panic(err)
	}
	size, err := edit.Literal(16)
	if err != nil {
		panic(err)
	}
	if err := document.Set(edit.Provider("self_managed"), "pool_size", size); err != nil {
		panic(err)
	}
	if err := document.AddToken("acme", [32]byte{0xab}); err != nil {
		panic(err)
	}
	if err := document.Save(); err != nil {
		panic(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	fmt.Print(string(text))
	// Output:
	// provider "self_managed" {
	//   pool_size = 16 # sandboxes kept ready
	// }
	//
	// # Ask Ada.
	// tenant "acme" {
	//   token_sha256 = [
	//     "46b42b4229cd7a39c564e780bb665a8bde4fdf722007e8473f167fe53ed4b995", # in use
	//     "ab00000000000000000000000000000000000000000000000000000000000000",
	//   ]
	// }
}
