package localfiles

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxWatches is how many directories one call may watch.
const maxWatches = 2000

const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// WatchFiles implements sdk.FileWatcher.
func (f *Files) WatchFiles(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, changed func([]sdk.FileChange) error) error {
	at, err := f.place(req.InstanceID, "path", req.Path)
	if err != nil {
		return err
	}
	if f.watchers != nil {
		select {
		case f.watchers <- struct{}{}:
			defer func() { <-f.watchers }()
		default:
			return sdk.Errorf(sdk.CodeQuotaExceeded, "the instance is watched %d times already", cap(f.watchers))
		}
	}
	w, err := newWatch(ctx, at, req.Recursive)
	if err != nil {
		return at.explain(err)
	}
	defer w.close()
	if err := ready(); err != nil {
		return err
	}
	for {
		changes, err := w.next()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(changes) > 0 {
			if err := changed(changes); err != nil {
				return err
			}
		}
		if err != nil {
			return at.explain(err)
		}
	}
}

// watch is one inotify instance with the directories that it watches.
type watch struct {
	ctx       context.Context //nolint:containedctx // it lives as long as one call
	at        place
	root      *directory // the directory at
	recursive bool
	events    *os.File
	directory map[int32]string // watch descriptor to path relative to root
	buf       []byte
	unhook    func() bool
}

func newWatch(ctx context.Context, at place, recursive bool) (*watch, error) {
	root, err := at.open()
	if err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		root.close()
		return nil, fmt.Errorf("inotify: %w", err)
	}
	w := &watch{
		ctx: ctx, at: at, root: root, recursive: recursive,
		events: os.NewFile(uintptr(fd), "inotify"), directory: map[int32]string{}, buf: make([]byte, 16<<10),
	}
	// To close the file is what ends a read that waits.
	w.unhook = context.AfterFunc(ctx, func() { _ = w.events.Close() })
	if _, err := w.add("."); err != nil {
		w.close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	return w, nil
}

func (w *watch) close() {
	if w.unhook() {
		_ = w.events.Close()
	}
	w.root.close()
}

// add watches a directory and, where that is wanted, those below. It returns what
// is in them.
func (w *watch) add(name string) (inside []string, err error) {
	if err := w.addOne(name); err != nil {
		return nil, err
	}
	if !w.recursive {
		return nil, nil
	}
	dir, err := w.at.sub(w.root, name)
	if err != nil {
		return nil, err
	}
	defer dir.close()
	below := &walker{ctx: w.ctx, at: w.at.below(name), depth: anyDepth, visit: func(f found) error {
		full := path.Join(name, f.name)
		inside = append(inside, full)
		if !f.info.isDir() {
			return nil
		}
		err := w.addOne(full)
		if gone(err) {
			return fs.SkipDir
		}
		return err
	}}
	return inside, below.walk(dir)
}

// addOne watches one directory. It is opened with the user's rights and below the
// root; the descriptor then names it to inotify, which knows no openat.
func (w *watch) addOne(name string) error {
	if len(w.directory) >= maxWatches {
		return errTooManyWatches
	}
	dir, err := rightly(w.at, func() (*os.File, error) {
		sub, err := openBelow(w.root, name)
		if err != nil {
			return nil, err
		}
		defer sub.close()
		return sub.entries()
	})
	if err != nil {
		return err
	}
	defer dir.Close()
	raw, err := w.events.SyscallConn()
	if err != nil {
		return err
	}
	var wd int
	var addErr error
	err = raw.Control(func(fd uintptr) {
		wd, addErr = unix.InotifyAddWatch(int(fd), fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), watchMask)
	})
	if err = errors.Join(err, addErr); err != nil {
		return err
	}
	w.directory[int32(wd)] = name
	return nil
}

// next waits for changes. With an error come those before it.
func (w *watch) next() ([]sdk.FileChange, error) {
	n, err := w.events.Read(w.buf)
	if err != nil {
		if w.ctx.Err() != nil {
			return nil, w.ctx.Err()
		}
		return nil, err
	}
	var told changes
	for buf := w.buf[:n]; len(buf) >= unix.SizeofInotifyEvent; {
		wd := int32(binary.NativeEndian.Uint32(buf))
		mask := binary.NativeEndian.Uint32(buf[4:])
		length := int(binary.NativeEndian.Uint32(buf[12:]))
		name := strings.TrimRight(string(buf[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+length]), "\x00")
		buf = buf[unix.SizeofInotifyEvent+length:]
		if err := w.take(&told, wd, mask, name); err != nil {
			return told, err
		}
	}
	return told, nil
}

func (w *watch) take(told *changes, wd int32, mask uint32, name string) error {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		told.add(sdk.FileChangesLost, "")
		return nil
	}
	dir, known := w.directory[wd]
	switch {
	case !known:
		return nil
	case mask&unix.IN_IGNORED != 0:
		delete(w.directory, wd)
		return nil
	case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0:
		if dir == "." {
			return w.at.refuse(sdk.CodeNotFound, "the directory was removed or moved")
		}
		return nil // the directory above tells
	case name == "" || isDraft(name):
		return nil
	}
	at := path.Join(dir, name)
	full := w.at.below(at).String()
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		told.add(sdk.FileCreated, full)
	case mask&unix.IN_DELETE != 0:
		told.add(sdk.FileRemoved, full)
	case mask&unix.IN_MOVED_FROM != 0:
		told.add(sdk.FileRenamed, full)
	default:
		told.add(sdk.FileModified, full)
	}
	if !w.recursive || mask&unix.IN_ISDIR == 0 {
		return nil
	}
	switch {
	case mask&unix.IN_MOVED_FROM != 0:
		return w.forget(at)
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		return w.follow(told, at)
	}
	return nil
}

// follow watches a directory that is new here and tells what is in it already.
func (w *watch) follow(told *changes, name string) error {
	inside, err := w.add(name)
	for _, entry := range inside {
		told.add(sdk.FileCreated, w.at.below(entry).String())
	}
	switch {
	case errors.Is(err, errTooManyWatches), errors.Is(err, errTooDeep):
		told.add(sdk.FileChangesLost, "")
	case gone(err):
	default:
		return err
	}
	return nil
}

// forget stops watching a directory that was moved away, with those below: their
// paths are not true any more.
func (w *watch) forget(name string) error {
	raw, err := w.events.SyscallConn()
	if err != nil {
		return err
	}
	for wd, dir := range w.directory {
		if dir != name && !strings.HasPrefix(dir, name+"/") {
			continue
		}
		delete(w.directory, wd)
		// It may have been removed meanwhile, and its watch with it.
		_ = raw.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) })
	}
	return nil
}

// changes are what is passed on at once.
type changes []sdk.FileChange

// add tells a change, unless it was the last one too: a program that writes in small
// pieces modifies a file a thousand times.
func (c *changes) add(kind sdk.FileChangeKind, name string) {
	if name = valid(name); len(name) > maxPath {
		kind, name = sdk.FileChangesLost, ""
	}
	change := sdk.FileChange{Kind: kind, Path: name}
	if n := len(*c); n > 0 && (*c)[n-1] == change {
		return
	}
	*c = append(*c, change)
}
