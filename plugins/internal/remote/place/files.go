package place

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
)

// fileAccess does one thing with a file.
var fileAccess = pack(guestfiles.Program(`print("` + prefix + `" + json.dumps(answer(asked())))`))

// Do does something with a file. A refusal is an *sdk.Error with the code that it has in
// the contract.
func Do(ctx context.Context, r Runner, req guestfiles.Request) (guestfiles.Answer, error) {
	var a guestfiles.Answer
	output, err := send(ctx, r, fileAccess, req)
	if err == nil {
		err = parse(output, &a)
	}
	if err != nil {
		return a, err
	}
	return a, a.Refusal()
}

// Inline is the most bytes that an operation takes as Data.
const Inline = inline
