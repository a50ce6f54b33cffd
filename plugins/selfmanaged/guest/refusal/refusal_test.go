package refusal_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/refusal"
)

func TestARefusalIsAnErrorOfTheSDKOnTheOtherSide(t *testing.T) {
	for _, code := range []string{
		refusal.Internal, refusal.QuotaExceeded, refusal.Unavailable, refusal.InvalidRequest,
		refusal.NotAllowed, refusal.NotFound, refusal.Conflict, refusal.NotSupported,
	} {
		err := wire.DecodeError(refusal.New(code, "path", "%s is wrong", "this"))
		assert.Equal(t, err.Error(), code+": path: this is wrong")
	}
}

func TestALongTextIsCutAndUTF8(t *testing.T) {
	err := wire.DecodeError(refusal.New(refusal.Conflict, "", "%s", strings.Repeat("é", 1<<20)+"\xff"))
	assert.Assert(t, len(err.Error()) < 4<<10)
	assert.Assert(t, utf8.ValidString(err.Error()))
}
