package localfiles

import (
	"context"
	"path"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/filetext"
)

// SearchFiles implements sdk.FileSearcher.
func (f *Files) SearchFiles(ctx context.Context, req sdk.SearchFilesRequest, pass func([]sdk.FileMatch) error) (truncated bool, err error) {
	at, err := f.place(req.InstanceID, "path", req.Path)
	if err != nil {
		return false, err
	}
	s, err := filetext.NewSearch(req, pass)
	if err != nil {
		return false, err
	}
	parent, base, err := at.locate(true)
	if err != nil {
		return false, err
	}
	defer parent.close()
	what, err := rightly(at, func() (info, error) { return parent.lstat(base) })
	if err != nil {
		return false, at.explain(err)
	}
	w := &walker{ctx: ctx, at: at, depth: anyDepth, visit: func(f found) error {
		entry := at.below(f.name)
		if !f.info.isRegular() || !s.Selects(f.name) || len(entry.String()) > maxPath {
			return nil
		}
		return search(ctx, s, f.dir, f.base, entry, true)
	}}
	if what.isDir() {
		dir, openErr := at.open()
		if openErr != nil {
			return false, openErr
		}
		defer dir.close()
		err = w.walk(dir)
	} else if s.Selects(path.Base(at.String())) {
		err = search(ctx, s, parent, base, at, false)
	}
	truncated, err = s.End(at.explain(err))
	return truncated || err == nil && w.skipped, err
}

// search looks through a file, one of many or the only one.
func search(ctx context.Context, s *filetext.Search, dir *directory, name string, at place, many bool) error {
	file, _, err := at.openRegular(dir, name)
	switch {
	case err != nil && many && ctx.Err() == nil:
		return nil // it has gone, or may not be read: not this caller's matter
	case err != nil:
		return err
	}
	defer file.Close()
	return s.Text(ctx, at.String(), file)
}
