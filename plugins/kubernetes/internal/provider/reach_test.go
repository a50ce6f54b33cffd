package provider

import (
	"context"
	"errors"
	"net"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestNobodyWaitsForPodsWhileTheAPIServerIsAway(t *testing.T) {
	var r reach
	r.note(nil)
	waiting, release := r.bound(t.Context())
	defer release()
	assert.NilError(t, waiting.Err())
	r.note(errors.New("connection refused"))
	<-waiting.Done()
	away, ok := errors.AsType[*sdk.Error](context.Cause(waiting))
	assert.Assert(t, ok && away.NoEffect, "nothing was made")
	assert.Equal(t, away.Code, sdk.CodeConnectionFailed)

	late, releaseLate := r.bound(t.Context())
	assert.Equal(t, context.Cause(late), context.Cause(waiting), "nor does who comes later")
	releaseLate()

	r.note(nil)
	again, releaseAgain := r.bound(t.Context())
	assert.NilError(t, again.Err())
	releaseAgain()
	assert.Equal(t, len(r.waits), 1)
}

func TestWhatWasNotSentHasNoEffect(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	address := listener.Addr().String()
	assert.NilError(t, listener.Close())
	_, err = net.Dial("tcp", address)
	told, ok := errors.AsType[*sdk.Error](explainAPI(t.Context(), err, sdk.CodeCreateFailed, "make a pod"))
	assert.Assert(t, ok && told.NoEffect)
	assert.Equal(t, told.Code, sdk.CodeConnectionFailed)

	cut := &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	told, ok = errors.AsType[*sdk.Error](explainAPI(t.Context(), cut, sdk.CodeCreateFailed, "make a pod"))
	assert.Assert(t, ok && !told.NoEffect, "it may have been done")
}
