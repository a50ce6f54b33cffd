package main

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// place is a path in an instance.
type place struct {
	// root has the directories that an instance keeps. It lets nothing lead out of it:
	// no name, and no symbolic link that code may put in the way at any moment.
	root  *os.Root
	name  string // below root
	field string // of the request
}

// inPlace calls do with what a path means, and words its errors for the agent.
func inPlace[T any](p *Provider, instanceID, field, name string, do func(at place) (T, error)) (T, error) {
	var none T
	if _, err := p.store.load(instanceID); err != nil {
		return none, err
	}
	root, err := os.OpenRoot(p.store.kept(instanceID))
	if errors.Is(err, fs.ErrNotExist) {
		return none, errNoInstance
	}
	if err != nil {
		return none, err
	}
	defer root.Close()
	at, err := locate(root, field, name)
	if err != nil {
		return none, err
	}
	result, err := do(at)
	if err != nil {
		return none, at.explain(err)
	}
	return result, nil
}

// locate finds a place. What else there is in a sandbox is that of the host, or gone
// after each execution.
func locate(root *os.Root, field, name string) (place, error) {
	if name == "" || strings.Contains(name, "\x00") {
		return place{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "must be a path")
	}
	full := path.Clean(name)
	if !path.IsAbs(full) {
		full = path.Join(workspace, full)
	}
	at := place{root: root, name: full[1:], field: field}
	if top, _, _ := strings.Cut(at.name, "/"); !slices.Contains(keptDirectories, top) {
		return place{}, at.refuse(sdk.CodeNotFound, "only what is in /workspace and /tmp can be reached")
	}
	return at, nil
}

func (at place) String() string { return "/" + at.name }

func (at place) refuse(code sdk.Code, why string) error {
	return sdk.FieldErrorf(code, at.field, "%s: %s", at, why)
}

// explain turns the error of a call of the system into what the agent can do about.
func (at place) explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sdk.Error](err); ok {
		return err
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	switch {
	case !ok:
		if _, ok := errors.AsType[*fs.PathError](err); ok { // of os.Root itself
			return at.refuse(sdk.CodeInvalidRequest, "leads out of /workspace and /tmp")
		}
		return err
	case errors.Is(errno, fs.ErrNotExist):
		return at.refuse(sdk.CodeNotFound, "no such file or directory")
	case errors.Is(errno, fs.ErrPermission):
		return at.refuse(sdk.CodeNotAllowed, "code in the instance may not do that either")
	case errno == syscall.ENOSPC, errno == syscall.EDQUOT:
		return at.refuse(sdk.CodeQuotaExceeded, "the disk is full")
	case errno == syscall.EINVAL, errno == syscall.ELOOP, errno == syscall.ENAMETOOLONG:
		return at.refuse(sdk.CodeInvalidRequest, errno.Error())
	default: // something is in the way: ENOTDIR, EISDIR, EEXIST, ENOTEMPTY, …
		return at.refuse(sdk.CodeConflict, errno.Error())
	}
}

func (at place) stat() (sdk.FileInfo, error) {
	info, err := at.root.Lstat(at.name)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	return at.describe(info), nil
}

func (at place) describe(info fs.FileInfo) sdk.FileInfo {
	d := sdk.FileInfo{Path: at.String(), Type: sdk.FileOther, Mode: info.Mode().Perm(), ModifiedAt: info.ModTime()}
	switch info.Mode().Type() {
	case 0:
		d.Type, d.Size = sdk.FileRegular, info.Size()
	case fs.ModeDir:
		d.Type = sdk.FileDirectory
	case fs.ModeSymlink:
		d.Type = sdk.FileSymlink
		d.Target, _ = at.root.Readlink(at.name) // it may be gone by now
	}
	return d
}
