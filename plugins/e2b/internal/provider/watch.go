package provider

import (
	"context"
	"path"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.FileWatcher = (*Provider)(nil)

// WatchFiles implements sdk.FileWatcher. It is envd that watches, as root; so the user
// is asked first.
func (p *Provider) WatchFiles(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, changed func([]sdk.FileChange) error) error {
	if _, err := (store{p}).Do(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.List, Path: req.Path, Depth: 1, Most: 1}); err != nil {
		return err
	}
	sb, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(sb.gone, stop)()
	root := absolute(req.Path)
	w, err := ask(watching, sb, func(c *envd.Client) (*envd.Watcher, error) { return c.Watch(watching, root, req.Recursive) })
	if err != nil {
		return sb.watchFailed(ctx, err)
	}
	defer w.Close()
	if err := ready(); err != nil {
		return err
	}
	for {
		change, err := w.Next()
		if err != nil {
			return sb.watchFailed(ctx, err)
		}
		kind, known := changeKinds[change.Kind]
		if !known || strings.HasPrefix(path.Base(change.Name), guestfiles.DraftPrefix) {
			continue
		}
		if err := changed([]sdk.FileChange{{Kind: kind, Path: path.Join(root, change.Name)}}); err != nil {
			return err
		}
	}
}

var changeKinds = map[envd.ChangeKind]sdk.FileChangeKind{
	envd.ChangeCreate: sdk.FileCreated, envd.ChangeWrite: sdk.FileModified, envd.ChangeChmod: sdk.FileModified,
	envd.ChangeRemove: sdk.FileRemoved, envd.ChangeRename: sdk.FileRenamed,
}

// watchFailed says why a directory is not watched any more.
func (sb *sandbox) watchFailed(ctx context.Context, err error) error {
	switch connectCode(err) {
	case "not_found":
		return sdk.FieldErrorf(sdk.CodeNotFound, "path", "there is no such directory")
	case "invalid_argument":
		return sdk.FieldErrorf(sdk.CodeConflict, "path", "is not a directory that can be watched")
	}
	return sb.explain(ctx, err)
}
