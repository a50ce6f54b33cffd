package seal_test

import (
	"errors"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

// The first key seals and all of them open, so that a key can be replaced.
func ExampleKeyring() {
	old := seal.NewKey()
	before, err := seal.ParseKeys(old)
	if err != nil {
		fmt.Println(err)
		return
	}
	sealed, err := before.Seal("hunter2")
	fmt.Println(len(sealed) > 0, err)

	after, err := seal.ParseKeys(seal.NewKey() + "\n" + old)
	fmt.Println(len(after.IDs()), err)
	value, err := after.Open(sealed)
	fmt.Println(value, err, after.OpensFirst(sealed))

	_, err = after.Open("hunter2")
	fmt.Println(errors.Is(err, seal.ErrForm))
	// Output:
	// true <nil>
	// 2 <nil>
	// hunter2 <nil> false
	// true
}
