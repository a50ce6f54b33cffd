package e2b

import (
	"context"
	"crypto/rand"
	"errors"
	"path"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/e2b/envdv1"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// registerFilesystem registers the routes of files and directories.
func (d envd) registerFilesystem() {
	unary(d, "/filesystem.Filesystem/Stat", d.stat)
	unary(d, "/filesystem.Filesystem/MakeDir", d.makeDirectory)
	unary(d, "/filesystem.Filesystem/Move", d.move)
	unary(d, "/filesystem.Filesystem/ListDir", d.listDirectory)
	unary(d, "/filesystem.Filesystem/Remove", d.remove)
	streams(d, "/filesystem.Filesystem/WatchDir", d.watch)
	unary(d, "/filesystem.Filesystem/CreateWatcher", d.createWatcher)
	unary(d, "/filesystem.Filesystem/GetWatcherEvents", d.watcherEvents)
	unary(d, "/filesystem.Filesystem/RemoveWatcher", d.removeWatcher)
}

// files lends the files of a sandbox.
func files(ctx context.Context, d envd, call *asked, use func(ctx context.Context, files sdk.Files, instanceID string) error) error {
	return lending.Use(ctx, d.instances, call.tenant, call.info.ID.String(), sdk.CapabilityFiles, use)
}

// maxLinks bounds how many links are followed to find out what one leads to.
const maxLinks = 8

// entryOf describes a file. A link is described as what it leads to, as envd does.
func entryOf(ctx context.Context, files sdk.Files, instanceID string, info sdk.FileInfo) *envdv1.EntryInfo {
	e := &envdv1.EntryInfo{
		Name: path.Base(info.Path), Path: info.Path, Size: info.Size, Mode: uint32(info.Mode.Perm()),
		Permissions: permissions(info.Type, info.Mode), Owner: user, Group: user,
	}
	if !info.ModifiedAt.IsZero() {
		e.ModifiedTime = timestamppb.New(info.ModifiedAt)
	}
	kind := info.Type
	if kind == sdk.FileSymlink {
		e.SymlinkTarget = &info.Target
		at := info
		for n := 0; at.Type == sdk.FileSymlink && n < maxLinks; n++ {
			target := at.Target
			if !path.IsAbs(target) {
				target = path.Join(path.Dir(at.Path), target)
			}
			next, err := files.StatFile(ctx, instanceID, target)
			if err != nil {
				break // it leads nowhere, or where nobody may look
			}
			at = next
		}
		kind = at.Type
	}
	switch kind {
	case sdk.FileRegular:
		e.Type = envdv1.FileType_FILE_TYPE_FILE
	case sdk.FileDirectory:
		e.Type = envdv1.FileType_FILE_TYPE_DIRECTORY
	}
	return e
}

func (d envd) stat(ctx context.Context, call *asked, req *envdv1.StatRequest) (*envdv1.StatResponse, error) {
	name, err := pathOf(req.GetPath())
	if err != nil {
		return nil, err
	}
	answer := &envdv1.StatResponse{}
	return answer, files(ctx, d, call, func(ctx context.Context, files sdk.Files, instanceID string) error {
		info, err := files.StatFile(ctx, instanceID, name)
		if err == nil {
			answer.Entry = entryOf(ctx, files, instanceID, info)
		}
		return err
	})
}

// makeDirectory makes a directory and its parents. One that exists is told as such.
func (d envd) makeDirectory(ctx context.Context, call *asked, req *envdv1.MakeDirRequest) (*envdv1.MakeDirResponse, error) {
	name, err := pathOf(req.GetPath())
	if err != nil {
		return nil, err
	}
	answer := &envdv1.MakeDirResponse{}
	return answer, files(ctx, d, call, func(ctx context.Context, files sdk.Files, instanceID string) error {
		switch info, err := files.StatFile(ctx, instanceID, name); {
		case err == nil && info.Type == sdk.FileDirectory:
			return own(connect.CodeAlreadyExists, sdk.Errorf(sdk.CodeConflict, "The directory exists already."))
		case err == nil:
			return refused("path", "is a file")
		case !isNotFound(err):
			return err
		}
		info, err := files.MakeDirectory(ctx, instanceID, name, 0o755)
		if err == nil {
			answer.Entry = entryOf(ctx, files, instanceID, info)
		}
		return err
	})
}

// move renames, makes the directories that are missing, and replaces a file that is there.
func (d envd) move(ctx context.Context, call *asked, req *envdv1.MoveRequest) (*envdv1.MoveResponse, error) {
	from, err := pathOf(req.GetSource())
	if err != nil {
		return nil, err
	}
	to, err := pathOf(req.GetDestination())
	if err != nil {
		return nil, err
	}
	answer := &envdv1.MoveResponse{}
	return answer, files(ctx, d, call, func(ctx context.Context, files sdk.Files, instanceID string) error {
		if _, err := files.StatFile(ctx, instanceID, from); err != nil {
			return err
		}
		if _, err := files.MakeDirectory(ctx, instanceID, path.Dir(to), 0o755); err != nil {
			return err
		}
		info, err := files.MoveFile(ctx, sdk.MoveFileRequest{InstanceID: instanceID, From: from, To: to, Overwrite: true})
		if err == nil {
			answer.Entry = entryOf(ctx, files, instanceID, info)
		}
		return err
	})
}

// Bounds of a list.
const (
	maxEntries = 10_000
	maxDepth   = 256
)

func (d envd) listDirectory(ctx context.Context, call *asked, req *envdv1.ListDirRequest) (*envdv1.ListDirResponse, error) {
	name, err := pathOf(req.GetPath())
	if err != nil {
		return nil, err
	}
	depth := int(min(max(req.GetDepth(), 1), maxDepth))
	answer := &envdv1.ListDirResponse{}
	return answer, files(ctx, d, call, func(ctx context.Context, files sdk.Files, instanceID string) error {
		info, err := files.StatFile(ctx, instanceID, name)
		if err == nil && info.Type != sdk.FileDirectory && info.Type != sdk.FileSymlink {
			err = refused("path", "is not a directory")
		}
		if err != nil {
			return err
		}
		var infos []sdk.FileInfo
		truncated, err := files.ListFiles(ctx, sdk.ListFilesRequest{InstanceID: instanceID, Path: name, Depth: depth, Limit: maxEntries}, func(found []sdk.FileInfo) error {
			infos = append(infos, found...)
			return nil
		})
		if err != nil {
			return err
		}
		if truncated {
			return sdk.Errorf(sdk.CodeQuotaExceeded, "There are more than %d entries; list the directories below by themselves.", maxEntries)
		}
		for _, info := range infos {
			answer.Entries = append(answer.Entries, entryOf(ctx, files, instanceID, info))
		}
		return nil
	})
}

// remove removes a file, or a directory with all that is in it. One that is not there is
// removed already.
func (d envd) remove(ctx context.Context, call *asked, req *envdv1.RemoveRequest) (*envdv1.RemoveResponse, error) {
	name, err := pathOf(req.GetPath())
	if err != nil {
		return nil, err
	}
	return &envdv1.RemoveResponse{}, files(ctx, d, call, func(ctx context.Context, files sdk.Files, instanceID string) error {
		err := files.RemoveFile(ctx, instanceID, name, true)
		if isNotFound(err) {
			return nil
		}
		return err
	})
}

// watching is what a watch is asked for.
type watching struct {
	path      string
	recursive bool
	entries   bool
}

func watchingOf(name string, recursive, entries bool) (watching, error) {
	name, err := pathOf(name)
	return watching{name, recursive, entries}, err
}

// follow tells of changes until ctx ends.
func (d envd) follow(ctx context.Context, call *asked, w watching, ready func() error, changed func(*envdv1.FilesystemEvent) error) error {
	return lending.Lend(ctx, d.instances, call.tenant, call.info.ID.String(), sdk.CapabilityFileWatch, (*instance.Lease).Watching, func(ctx context.Context, watcher sdk.FileWatcher, lease *instance.Lease) error {
		all, err := instance.Capable[sdk.Files](lease)
		if err != nil {
			return err
		}
		req := sdk.WatchFilesRequest{InstanceID: lease.InstanceID, Path: w.path, Recursive: w.recursive}
		err = watcher.WatchFiles(ctx, req, ready, func(changes []sdk.FileChange) error {
			for _, change := range changes {
				kind, known := eventTypes[change.Kind]
				if !known {
					return own(connect.CodeDataLoss, sdk.Errorf(sdk.CodeConflict, "There were more changes than could be told."))
				}
				event := &envdv1.FilesystemEvent{Name: relative(w.path, change.Path), Type: kind}
				if w.entries {
					if info, err := all.StatFile(ctx, lease.InstanceID, change.Path); err == nil {
						event.Entry = entryOf(ctx, all, lease.InstanceID, info)
					}
				}
				if err := changed(event); err != nil {
					return err
				}
			}
			return nil
		})
		if coded, ok := errors.AsType[*sdk.Error](err); ok && coded.Code == sdk.CodeConflict {
			return own(connect.CodeInvalidArgument, err) // it is no directory
		}
		return err
	})
}

var eventTypes = map[sdk.FileChangeKind]envdv1.EventType{
	sdk.FileCreated:  envdv1.EventType_EVENT_TYPE_CREATE,
	sdk.FileModified: envdv1.EventType_EVENT_TYPE_WRITE,
	sdk.FileRemoved:  envdv1.EventType_EVENT_TYPE_REMOVE,
	sdk.FileRenamed:  envdv1.EventType_EVENT_TYPE_RENAME,
}

// relative is a path below a directory, without that.
func relative(directory, name string) string {
	if directory != "/" {
		directory += "/"
	}
	if len(name) > len(directory) && name[:len(directory)] == directory {
		return name[len(directory):]
	}
	return path.Base(name)
}

func (d envd) watch(ctx context.Context, call *asked, req *envdv1.WatchDirRequest, send func(*envdv1.WatchDirResponse) error) error {
	w, err := watchingOf(req.GetPath(), req.GetRecursive(), req.GetIncludeEntry())
	if err != nil {
		return err
	}
	to := newPulse(send, call.keepAlive, &envdv1.WatchDirResponse{Event: &envdv1.WatchDirResponse_Keepalive{Keepalive: &envdv1.WatchDirResponse_KeepAlive{}}})
	defer to.close()
	return d.follow(ctx, call, w, func() error {
		return to.tell(&envdv1.WatchDirResponse{Event: &envdv1.WatchDirResponse_Start_{Start: &envdv1.WatchDirResponse_Start{}}})
	}, func(event *envdv1.FilesystemEvent) error {
		return to.tell(&envdv1.WatchDirResponse{Event: &envdv1.WatchDirResponse_Filesystem{Filesystem: event}})
	})
}

// Bounds of the watches that clients ask for now and then.
const (
	maxWatchers      = 32     // of a sandbox
	maxWatcherEvents = 10_000 // that wait
	// maxWatcherBytes and maxTenantBytes bound the memory of events that wait: of a watcher, and of
	// all watchers of a tenant. Code in the sandbox decides how long their names are.
	maxWatcherBytes, maxTenantBytes = 1 << 20, 16 << 20
	// eventBytes is what an event takes beside its names.
	eventBytes = 256
	// watcherIdle is how long nobody may ask for the events of one.
	watcherIdle = 10 * time.Minute
)

// watchers keep changes for clients that ask for them now and then. They end with the
// process, as those of envd do: a client is told then that its own is not there.
type watchers struct {
	mu  sync.Mutex
	all map[string]*watcher
	// bytes of the events that wait, by tenant.
	bytes map[string]int
}

type watcher struct {
	tenant  string
	sandbox string
	cancel  context.CancelFunc
	idle    *time.Timer
	events  []*envdv1.FilesystemEvent
	bytes   int // of them
	// failed is why there are no more.
	failed  error
	removed bool
}

// add begins a watch, which lives until its cancel is called.
func (w *watchers) add(id, tenant, sandbox string, cancel context.CancelFunc) (*watcher, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, one := range w.all {
		if one.sandbox == sandbox {
			n++
		}
	}
	if n >= maxWatchers {
		return nil, sdk.Errorf(sdk.CodeQuotaExceeded, "The sandbox has %d watchers, which is as many as it may. Remove some.", n)
	}
	if w.all == nil {
		w.all, w.bytes = map[string]*watcher{}, map[string]int{}
	}
	one := &watcher{tenant: tenant, sandbox: sandbox, cancel: cancel}
	one.idle = time.AfterFunc(watcherIdle, func() { w.remove(id, sandbox) })
	w.all[id] = one
	return one, nil
}

// remove ends a watch, and reports whether there was one.
func (w *watchers) remove(id, sandbox string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	one, ok := w.all[id]
	if !ok || one.sandbox != sandbox {
		return false
	}
	one.idle.Stop()
	one.cancel()
	w.drop(one)
	one.removed = true
	delete(w.all, id)
	return true
}

// drop forgets the events of a watcher, with mu held.
func (w *watchers) drop(one *watcher) {
	if w.bytes[one.tenant] -= one.bytes; w.bytes[one.tenant] == 0 {
		delete(w.bytes, one.tenant)
	}
	one.events, one.bytes = nil, 0
}

// note keeps a change until the client asks for it.
func (w *watchers) note(one *watcher, event *envdv1.FilesystemEvent) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := proto.Size(event) + eventBytes
	switch {
	case one.removed:
		return context.Canceled
	case len(one.events) >= maxWatcherEvents:
		return lostChanges("There were more than %d changes that the client has not asked for.", maxWatcherEvents)
	case one.bytes+size > maxWatcherBytes:
		return lostChanges("The changes that the client has not asked for take more than %d bytes.", maxWatcherBytes)
	case w.bytes[one.tenant]+size > maxTenantBytes:
		return lostChanges("The changes that the tenant's clients have not asked for take more than %d bytes.", maxTenantBytes)
	}
	one.events = append(one.events, event)
	one.bytes += size
	w.bytes[one.tenant] += size
	return nil
}

func lostChanges(format string, bound int) error {
	return own(connect.CodeDataLoss, sdk.Errorf(sdk.CodeConflict, format, bound))
}

// fail keeps why a watch has ended.
func (w *watchers) fail(one *watcher, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.failed = err
}

// take returns the changes since the last time.
func (w *watchers) take(id, sandbox string) ([]*envdv1.FilesystemEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one, ok := w.all[id]
	if !ok || one.sandbox != sandbox {
		return nil, noWatcher()
	}
	one.idle.Reset(watcherIdle)
	events := one.events
	w.drop(one)
	if len(events) == 0 && one.failed != nil {
		return nil, one.failed
	}
	return events, nil
}

func noWatcher() error { return sdk.Errorf(sdk.CodeNotFound, "There is no such watcher.") }

// createWatcher begins a watch whose events are asked for.
func (d envd) createWatcher(ctx context.Context, call *asked, req *envdv1.CreateWatcherRequest) (*envdv1.CreateWatcherResponse, error) {
	w, err := watchingOf(req.GetPath(), req.GetRecursive(), req.GetIncludeEntry())
	if err != nil {
		return nil, err
	}
	id, sandbox := rand.Text(), call.info.ID.Instance
	watched, cancel := context.WithCancel(context.WithoutCancel(ctx))
	one, err := d.watchers.add(id, call.tenant.Name, sandbox, cancel)
	if err != nil {
		cancel()
		return nil, err
	}
	ready := make(chan error, 1)
	go func() {
		err := d.follow(watched, call, w, func() error {
			ready <- nil
			return nil
		}, func(event *envdv1.FilesystemEvent) error { return d.watchers.note(one, event) })
		d.watchers.fail(one, err)
		select {
		case ready <- err:
		default: // it had begun
		}
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		d.watchers.remove(id, sandbox)
		return nil, err
	}
	return &envdv1.CreateWatcherResponse{WatcherId: id}, nil
}

func (d envd) watcherEvents(_ context.Context, call *asked, req *envdv1.GetWatcherEventsRequest) (*envdv1.GetWatcherEventsResponse, error) {
	events, err := d.watchers.take(req.GetWatcherId(), call.info.ID.Instance)
	return &envdv1.GetWatcherEventsResponse{Events: events}, err
}

func (d envd) removeWatcher(_ context.Context, call *asked, req *envdv1.RemoveWatcherRequest) (*envdv1.RemoveWatcherResponse, error) {
	if !d.watchers.remove(req.GetWatcherId(), call.info.ID.Instance) {
		return nil, noWatcher()
	}
	return &envdv1.RemoveWatcherResponse{}, nil
}
