package files

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
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// maxWatches is how many directories one call may watch.
const maxWatches = 2000

// The kinds of changes, as the SDK names them.
const (
	changeCreated  = "created"
	changeModified = "modified"
	changeRemoved  = "removed"
	changeRenamed  = "renamed"
	changeOverflow = "overflow"
)

const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

func (s *service) WatchFiles(req *providerv1.WatchFilesRequest, stream grpc.ServerStreamingServer[providerv1.WatchFilesResponse]) error {
	at, err := s.place("path", req.GetPath())
	if err != nil {
		return err
	}
	select {
	case s.watchers <- struct{}{}:
		defer func() { <-s.watchers }()
	default:
		return sdk.Errorf(sdk.CodeQuotaExceeded, "the instance is watched %d times already", maxWatchers)
	}
	w, err := newWatch(stream.Context(), at, req.GetRecursive())
	if err != nil {
		return at.explain(err)
	}
	defer w.close()
	if err := stream.Send(&providerv1.WatchFilesResponse{}); err != nil {
		return err
	}
	for {
		changes, err := w.next()
		if len(changes) > 0 {
			if err := stream.Send(&providerv1.WatchFilesResponse{Changes: changes}); err != nil {
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
	ctx       context.Context
	at        place
	root      *directory // the directory at
	recursive bool
	events    *os.File
	directory map[int32]string // watch descriptor to path relative to root
	buf       []byte
	unhook    func() bool
}

func newWatch(ctx context.Context, at place, recursive bool) (*watch, error) {
	root, err := at.openDirectory()
	if err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		_ = root.Close()
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
		return nil, err
	}
	return w, nil
}

func (w *watch) close() {
	if w.unhook() {
		_ = w.events.Close()
	}
	_ = w.root.Close()
}

var errTooManyWatches = errors.New("too many directories to watch")

// add watches a directory and, where that is wanted, those below. It returns what
// is in them.
func (w *watch) add(name string) (inside []string, err error) {
	if err := w.addOne(name); err != nil {
		return nil, err
	}
	if !w.recursive {
		return nil, nil
	}
	dir, err := subAsUser(w.root, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	below := &walker{ctx: w.ctx, depth: anyDepth, visit: func(f found) error {
		full := path.Join(name, f.name)
		inside = append(inside, full)
		if !f.info.isDir() {
			return nil
		}
		err := w.addOne(full)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR) {
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
	var dir *os.File
	err := asUser(func() error {
		sub, err := openBelow(w.root, name)
		if err != nil {
			return err
		}
		defer sub.Close()
		dir, err = sub.entries()
		return err
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
func (w *watch) next() ([]*providerv1.FileChange, error) {
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
		told.add(changeOverflow, "")
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
			return sdk.FieldErrorf(sdk.CodeNotFound, w.at.field, "%s: the directory was removed or moved", w.at.String())
		}
		return nil // the directory above tells
	case name == "" || isDraft(name):
		return nil
	}
	at := path.Join(dir, name)
	full := w.at.below(at)
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		told.add(changeCreated, full)
	case mask&unix.IN_DELETE != 0:
		told.add(changeRemoved, full)
	case mask&unix.IN_MOVED_FROM != 0:
		told.add(changeRenamed, full)
	default:
		told.add(changeModified, full)
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
		told.add(changeCreated, w.at.below(entry))
	}
	switch {
	case errors.Is(err, errTooManyWatches), errors.Is(err, errTooDeep):
		told.add(changeOverflow, "")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENOTDIR):
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

// changes are what one message tells.
type changes []*providerv1.FileChange

// add tells a change, unless it was the last one too: a program that writes in
// small pieces modifies a file a thousand times.
func (c *changes) add(kind, path string) {
	path = strings.ToValidUTF8(path, "\uFFFD")
	if len(path) > maxPath {
		kind, path = changeOverflow, ""
	}
	if n := len(*c); n > 0 && (*c)[n-1].GetKind() == kind && (*c)[n-1].GetPath() == path {
		return
	}
	*c = append(*c, &providerv1.FileChange{Kind: kind, Path: path})
}
