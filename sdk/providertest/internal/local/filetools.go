package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	_ sdk.FileSearcher = (*Provider)(nil)
	_ sdk.FileWatcher  = (*Provider)(nil)
)

// SearchFiles implements sdk.FileSearcher.
func (p *Provider) SearchFiles(_ context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (truncated bool, err error) {
	pattern := req.Pattern
	if req.Literal {
		pattern = regexp.QuoteMeta(pattern)
	}
	if req.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return false, sdk.FieldErrorf(sdk.CodeInvalidRequest, "pattern", "is not a regular expression")
	}
	err = p.with(req.InstanceID, req.Path, func(t tree, start string) error {
		left := req.Limit
		search := func(file string) error {
			content, err := fs.ReadFile(t.FS(), file)
			if err != nil || !utf8.Valid(content) {
				return err
			}
			for n, line := range strings.Split(strings.TrimSuffix(string(content), "\n"), "\n") {
				at := re.FindStringIndex(line)
				if at == nil {
					continue
				}
				if left == 0 {
					truncated = true
					return fs.SkipAll
				}
				left--
				if err := found([]sdk.FileMatch{{Path: "/" + file, Line: n + 1, Column: at[0] + 1, Text: line}}); err != nil {
					return err
				}
			}
			return nil
		}
		info, err := t.Stat(start)
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() {
			if err := search(start); !errors.Is(err, fs.SkipAll) {
				return err
			}
			return nil
		}
		return t.walk(start, func(file string, entry fs.DirEntry) error {
			if !entry.Type().IsRegular() || !matches(req.Glob, strings.TrimPrefix(file, start+"/")) {
				return nil
			}
			return search(file)
		})
	})
	return truncated, err
}

// ReplaceInFiles implements sdk.FileSearcher.
func (p *Provider) ReplaceInFiles(_ context.Context, req sdk.ReplaceInFilesRequest) ([]sdk.FileReplacement, error) {
	var replaced []sdk.FileReplacement
	for _, file := range req.Paths {
		err := p.with(req.InstanceID, file, func(t tree, file string) error {
			content, err := fs.ReadFile(t.FS(), file)
			if err != nil {
				return err
			}
			info, err := t.Stat(file)
			if err != nil {
				return err
			}
			count := bytes.Count(content, []byte(req.Old))
			replaced = append(replaced, sdk.FileReplacement{Path: "/" + file, Count: int64(count)})
			if count == 0 {
				return nil
			}
			return t.replace(file, info.Mode().Perm(), bytes.NewReader(bytes.ReplaceAll(content, []byte(req.Old), []byte(req.New))))
		})
		if err != nil {
			return nil, err
		}
	}
	return replaced, nil
}

// watchInterval is how often a directory is compared with what it was.
const watchInterval = 20 * time.Millisecond

// WatchFiles implements sdk.FileWatcher.
func (p *Provider) WatchFiles(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, changed func([]sdk.FileChange) error) error {
	return p.with(req.InstanceID, req.Path, func(t tree, directory string) error {
		before, err := t.snapshot(directory, req.Recursive)
		if err == nil {
			err = ready()
		}
		if err != nil {
			return err
		}
		ticker := time.NewTicker(watchInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-ticker.C:
			}
			now, err := t.snapshot(directory, req.Recursive)
			if err != nil {
				return err
			}
			if changes := difference(before, now); len(changes) > 0 {
				if err := changed(changes); err != nil {
					return err
				}
			}
			before = now
		}
	})
}

// snapshot is what is below a directory, with what changes when it does.
func (t tree) snapshot(directory string, recursive bool) (map[string]string, error) {
	all := map[string]string{}
	err := t.walk(directory, func(file string, entry fs.DirEntry) error {
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		all[file] = info.Mode().Type().String()
		if !entry.IsDir() {
			all[file] = fmt.Sprint(info.ModTime().UnixNano(), info.Size())
		} else if !recursive {
			return fs.SkipDir
		}
		return nil
	})
	return all, err
}

func difference(before, now map[string]string) []sdk.FileChange {
	var changes []sdk.FileChange
	for file, what := range now {
		switch was, known := before[file]; {
		case !known:
			changes = append(changes, sdk.FileChange{Kind: sdk.FileCreated, Path: "/" + file})
		case was != what:
			changes = append(changes, sdk.FileChange{Kind: sdk.FileModified, Path: "/" + file})
		}
	}
	for file := range before {
		if _, there := now[file]; !there {
			changes = append(changes, sdk.FileChange{Kind: sdk.FileRemoved, Path: "/" + file})
		}
	}
	return changes
}
