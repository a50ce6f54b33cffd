package provider_test

import (
	"context"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// watch watches the workspace; its end comes on the channel.
func watch(t *testing.T, p *provider.Provider, id string, changes chan<- sdk.FileChange) (ended <-chan error) {
	t.Helper()
	ready, result := make(chan struct{}), make(chan error, 1)
	go func() {
		result <- p.WatchFiles(t.Context(), sdk.WatchFilesRequest{InstanceID: id, Path: "."},
			func() error { close(ready); return nil },
			func(list []sdk.FileChange) error {
				for _, change := range list {
					changes <- change
				}
				return nil
			})
	}()
	<-ready
	return result
}

func TestAWatchEndsWithItsSandboxOrItsStream(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)

	// The first message has 17 bytes; the stream breaks within the second.
	inject(server, []string{"POST /filesystem.Filesystem/WatchDir"}, e2bfake.Fault{CutAt: e2bfake.Bytes(20)}, 1)
	ended := watch(t, p, id, make(chan sdk.FileChange, 100))
	bash(t, p, id, "touch one")
	assert.ErrorIs(t, <-ended, &sdk.Error{Code: sdk.CodeConnectionFailed})

	ended = watch(t, p, id, make(chan sdk.FileChange, 100))
	server.Expire(id)
	assert.ErrorIs(t, <-ended, &sdk.Error{Code: sdk.CodeNotFound})
}

func TestAWatchThatAPauseEndsIsAConflictAlsoAfterTheResume(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	// The watch reads on, and finds its stream broken, only after the resume.
	changes := make(chan sdk.FileChange)
	ended := watch(t, p, id, changes)
	bash(t, p, id, "touch one")
	assert.NilError(t, p.Pause(t.Context(), id))
	assert.NilError(t, p.Resume(t.Context(), id))
	for {
		select {
		case <-changes:
		case err := <-ended:
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConflict})
			return
		}
	}
}

func TestDraftsAreNotTold(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	changes := make(chan sdk.FileChange, 100)
	watch(t, p, id, changes)
	_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: "f"}, strings.NewReader("x"))
	assert.NilError(t, err)
	assert.DeepEqual(t, <-changes, sdk.FileChange{Kind: sdk.FileCreated, Path: "/workspace/f"})
}

func TestWhatCannotBeWatchedIsSaid(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	bash(t, p, id, "echo x > f")
	begin := func(ctx context.Context, path string) error {
		return p.WatchFiles(ctx, sdk.WatchFilesRequest{InstanceID: id, Path: path}, func() error { panic("it watches") }, nil)
	}
	assert.ErrorIs(t, begin(t.Context(), "absent"), &sdk.Error{Code: sdk.CodeNotFound})
	assert.ErrorIs(t, begin(t.Context(), "f"), &sdk.Error{Code: sdk.CodeConflict})
	// Something may have changed between asking the user and asking envd.
	inject(server, []string{"POST /filesystem.Filesystem/WatchDir"}, e2bfake.Fault{Status: 404, Body: `{"code":"not_found","message":"gone"}`}, 1)
	assert.ErrorIs(t, begin(t.Context(), "."), &sdk.Error{Code: sdk.CodeNotFound})
}
