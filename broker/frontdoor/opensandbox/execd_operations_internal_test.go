package opensandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
)

const anInstance = "0123456789abcdef0123456789abcdef"

func TestTheNameOfAnOperation(t *testing.T) {
	now := time.Unix(1_700_000_000, 999)
	for id, want := range map[string]error{
		anInstance + ".1700000000.12345678":                      nil,
		anInstance + ".0.A-_45678":                               nil,
		anInstance + ".1700000000." + strings.Repeat("x", 128):   nil,
		anInstance + ".1700000001.12345678":                      errOperationID, // not issued yet
		strings.ReplaceAll(anInstance, "0", "1") + ".1.12345678": errOtherBox,
		strings.ToUpper(anInstance) + ".1.12345678":              errOperationID,
		anInstance[1:] + ".1.12345678":                           errOperationID,
		anInstance + ".1.1234567":                                errOperationID,
		anInstance + ".1." + strings.Repeat("x", 129):            errOperationID,
		anInstance + ".01.12345678":                              errOperationID,
		anInstance + ".-1.12345678":                              errOperationID,
		anInstance + "." + strings.Repeat("9", 18) + ".12345678": errOperationID,
		anInstance + "." + strings.Repeat("9", 30) + ".12345678": errOperationID,
		anInstance + ".1.12345678.":                              errOperationID,
		anInstance + ".1.1234 678":                               errOperationID,
		anInstance + ".1.12345678\n":                             errOperationID,
		"":                                                       errOperationID,
	} {
		expiry, err := expiryOf(id, anInstance, now)
		assert.Check(t, is.Equal(err, want), id)
		assert.Check(t, err != nil || expiry.After(time.Unix(24*3600-1, 0)), id)
	}
	expiry, err := expiryOf(anInstance+".1700000000.12345678", anInstance, now)
	assert.NilError(t, err)
	assert.Equal(t, expiry, time.Unix(1_700_000_000+24*3600, 0).UTC())
}

func TestASandboxKeepsTheNameOfItsExecutions(t *testing.T) {
	one := instance.ID{Tenant: "acme", Session: "s", Instance: "x"}
	other := instance.ID{Tenant: "acme", Session: "s", Instance: "y"}
	first, next := newTokens([]byte("key")), newTokens([]byte("key")) // of the next process
	assert.Equal(t, first.executionsOf(one), next.executionsOf(one))
	assert.Assert(t, first.executionsOf(one) != first.executionsOf(other))
	assert.Assert(t, !strings.HasPrefix(first.of(one), first.executionsOf(one)), "it is no secret")
	assert.Assert(t, operationForm.MatchString(first.executionsOf(one)+".1.12345678"))
}

func FuzzOperation(f *testing.F) {
	for _, seed := range []string{
		fmt.Sprintf(`{"operation_id":"%s.1.12345678","command":"ls"}`, anInstance), `{`, `null`, `{"operation_id":1}`,
		`{"operation_id":null,"argv":[]}`, `{"COMMAND":"ls"}`, `{"command":"ls","x":1}`, `{"envs":{"A":null}}`,
	} {
		f.Add(seed)
	}
	now := time.Unix(1_700_000_000, 0)
	f.Fuzz(func(t *testing.T, text string) {
		var body struct {
			commandBody
			OperationID string `json:"operation_id"`
		}
		if err := readOperation([]byte(text), &body); err != nil {
			return
		}
		expiry, err := expiryOf(body.OperationID, anInstance, now)
		if err != nil {
			assert.Assert(t, slices.ContainsFunc([]error{errOperationID, errOtherBox}, func(known error) bool { return errors.Is(err, known) }))
			return
		}
		// What is kept of it outlives its name.
		assert.Assert(t, !expiry.After(now.Add(24*time.Hour)))
		assert.Assert(t, len(body.OperationID) <= 32+1+18+1+128)
	})
}
