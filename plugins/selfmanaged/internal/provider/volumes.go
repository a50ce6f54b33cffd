package provider

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/volumes"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localfiles"
)

var _ sdk.VolumeKeeper = (*Provider)(nil)

// codeUser is the user and group that code runs as in sandboxes.
const codeUser = 1000

// sharer is a runtime whose sandboxes can have directories of this machine.
type sharer interface {
	StartWith(id string, mounts []runsc.Mount) (running, error)
	InNamespace(do func() error) error
}

var _ sharer = runscRuntime{}

// volumeStore is the store of a provider; without one, the error why there is none.
type volumeStore struct {
	store  *volumes.Store
	reason string
}

func (v volumeStore) open() (*volumes.Store, error) {
	if v.store != nil {
		return v.store, nil
	}
	return nil, &sdk.Error{Code: sdk.CodeNotSupported, Capability: sdk.CapabilityVolumes, NoEffect: true, Message: v.reason}
}

func (v volumeStore) close() {
	if v.store != nil {
		v.store.Close()
	}
}

// openVolumes opens the volumes of this provider. Where they cannot be had, whoever asks
// for one is told why.
func openVolumes(p *Provider, req sdk.ConfigureRequest) (volumeStore, error) {
	none := func(reason string) (volumeStore, error) {
		if p.settings.VolumesMB > 0 {
			p.logger.Warn("there are no volumes", "reason", reason)
		}
		return volumeStore{reason: reason}, nil
	}
	shared, can := p.runtime.(sharer)
	switch {
	case p.settings.VolumesMB == 0:
		return none("the operator has not set volumes_mb, the room for volumes, for this provider")
	case !can:
		return none("volumes need runtime = \"runsc\"")
	case os.Geteuid() != 0:
		return none("volumes need a broker that runs as root")
	}
	parent := p.settings.VolumeDir
	if parent == "" {
		parent = filepath.Join(filepath.Dir(req.StateDir), "volumes") // beside those of its processes
	}
	store, err := volumes.Open(volumes.Options{
		Dir: filepath.Join(parent, req.BrokerID+"-"+req.Label), MountDir: filepath.Join(req.StateDir, "volumes"),
		Total: p.settings.VolumesMB << 20, Owner: codeUser, InNamespace: shared.InNamespace, Logger: p.logger.Named("volumes"),
	})
	if err != nil {
		p.logger.Debug("open the volumes", "error", err)
		return none("volumes cannot be kept on this machine: " + err.Error())
	}
	return volumeStore{store: store}, nil
}

// CreateVolume implements sdk.VolumeKeeper.
func (p *Provider) CreateVolume(ctx context.Context, req sdk.CreateVolumeRequest) (sdk.Volume, error) {
	store, err := p.volumes.open()
	if err != nil {
		return sdk.Volume{}, err
	}
	return store.Create(ctx, req)
}

// DeleteVolume implements sdk.VolumeKeeper.
func (p *Provider) DeleteVolume(ctx context.Context, volumeID string) error {
	if p.volumes.store == nil {
		return nil // and none is listed
	}
	return p.volumes.store.Delete(ctx, volumeID)
}

// ListVolumes implements sdk.VolumeKeeper.
func (p *Provider) ListVolumes(context.Context) ([]sdk.Volume, error) {
	if p.volumes.store == nil {
		return nil, nil
	}
	return p.volumes.store.List()
}

// acquireWith is Acquire of the pool for a sandbox that has volumes. It is made for them:
// gVisor takes no directory once a sandbox runs.
func (p *Provider) acquireWith(ctx context.Context, req pool.Request, mounts []sdk.VolumeMount) (*sandbox, error) {
	store, err := p.volumes.open()
	if err != nil {
		return nil, err
	}
	if err := sdk.CheckVolumeMounts(mounts); err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if m.Path == "/mnt/user-data" || strings.HasPrefix(m.Path, "/mnt/user-data/") {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "volumes", "the path /mnt/user-data is in use by this provider")
		}
	}
	return p.pool.AcquireTailored(ctx, req, func(ctx context.Context) (*sandbox, error) {
		uses, err := useAll(ctx, store, mounts)
		if err != nil {
			return nil, err
		}
		var with shared
		for i, m := range mounts {
			with.mounts = append(with.mounts, runsc.Mount{Source: uses[i].Path(m.ReadOnly), Destination: m.Path, ReadOnly: m.ReadOnly})
			with.largest = max(with.largest, uint64(uses[i].Size()))
		}
		s, err := p.sandboxes.makeWith(ctx, req.Template, with)
		if err != nil {
			releaseAll(uses)
			return nil, err
		}
		made := s.release // of its template
		s.release = func() {
			releaseAll(uses)
			if made != nil {
				made()
			}
		}
		return s, nil
	})
}

// shared are the directories that a sandbox shares with others, and the size in bytes of the
// largest one, which a file may have.
type shared struct {
	mounts  []runsc.Mount
	largest uint64
}

// makeWith is make for a sandbox with volumes.
func (m *maker) makeWith(ctx context.Context, template string, with shared) (*sandbox, error) {
	if isImage(template) {
		return m.makeOfTemplate(ctx, template, with)
	}
	preparation := m.preparation(template)
	preparation.FileSizeLimit = max(preparation.FileSizeLimit, with.largest)
	return m.complete(ctx, preparation, func(id string) (running, error) {
		return m.runtime.(sharer).StartWith(id, with.mounts)
	})
}

// useAll mounts volumes, all or none.
func useAll(ctx context.Context, store *volumes.Store, mounts []sdk.VolumeMount) (uses []*volumes.Use, err error) {
	for _, m := range mounts {
		use, err := store.Use(ctx, m.VolumeID)
		if err != nil {
			releaseAll(uses)
			if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code == sdk.CodeNotFound {
				return nil, &sdk.Error{Code: sdk.CodeNotFound, Field: "volumes", Message: e.Message, NoEffect: true}
			}
			return nil, err
		}
		uses = append(uses, use)
	}
	return uses, nil
}

func releaseAll(uses []*volumes.Use) {
	for _, use := range uses {
		use.Release()
	}
}

// onVolume makes a call of files on a volume, if the ID is that of one.
func (p *Provider) onVolume(ctx context.Context, id string, call func(files *localfiles.Files) error) (is bool, err error) {
	if !volumes.Owns(id) {
		return false, nil
	}
	store, err := p.volumes.open()
	if err != nil {
		return true, err
	}
	use, err := store.Use(ctx, id)
	if err != nil {
		return true, err
	}
	defer use.Release()
	return true, call(store.Files)
}

// readVolume is onVolume for what is read after the call.
func (p *Provider) readVolume(ctx context.Context, id string, open func(files *localfiles.Files) (io.ReadCloser, error)) (io.ReadCloser, error) {
	store, err := p.volumes.open()
	if err != nil {
		return nil, err
	}
	use, err := store.Use(ctx, id)
	if err != nil {
		return nil, err
	}
	content, err := open(store.Files)
	if err != nil {
		use.Release()
		return nil, err
	}
	return &volumeContent{content, sync.OnceFunc(use.Release)}, nil
}

// volumeContent keeps the volume that it is of in use.
type volumeContent struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (c *volumeContent) Close() error {
	defer c.release()
	return c.ReadCloser.Close()
}

// StatFile implements sdk.Files.
func (p *Provider) StatFile(ctx context.Context, id, path string) (info sdk.FileInfo, err error) {
	is, err := p.onVolume(ctx, id, func(files *localfiles.Files) (err error) {
		info, err = files.StatFile(ctx, id, path)
		return err
	})
	if !is {
		return p.Calls.StatFile(ctx, id, path)
	}
	return info, err
}

// ListFiles implements sdk.Files.
func (p *Provider) ListFiles(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (truncated bool, err error) {
	is, err := p.onVolume(ctx, req.InstanceID, func(files *localfiles.Files) (err error) {
		truncated, err = files.ListFiles(ctx, req, found)
		return err
	})
	if !is {
		return p.Calls.ListFiles(ctx, req, found)
	}
	return truncated, err
}

// ReadFile implements sdk.Files.
func (p *Provider) ReadFile(ctx context.Context, req sdk.ReadFileRequest) (info sdk.FileInfo, content io.ReadCloser, err error) {
	if !volumes.Owns(req.InstanceID) {
		return p.Calls.ReadFile(ctx, req)
	}
	content, err = p.readVolume(ctx, req.InstanceID, func(files *localfiles.Files) (content io.ReadCloser, err error) {
		info, content, err = files.ReadFile(ctx, req)
		return content, err
	})
	return info, content, err
}

// WriteFile implements sdk.Files.
func (p *Provider) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (info sdk.FileInfo, err error) {
	is, err := p.onVolume(ctx, req.InstanceID, func(files *localfiles.Files) (err error) {
		info, err = files.WriteFile(ctx, req, content)
		return err
	})
	if !is {
		return p.Calls.WriteFile(ctx, req, content)
	}
	return info, err
}

// MakeDirectory implements sdk.Files.
func (p *Provider) MakeDirectory(ctx context.Context, id, path string, mode fs.FileMode) (info sdk.FileInfo, err error) {
	is, err := p.onVolume(ctx, id, func(files *localfiles.Files) (err error) {
		info, err = files.MakeDirectory(ctx, id, path, mode)
		return err
	})
	if !is {
		return p.Calls.MakeDirectory(ctx, id, path, mode)
	}
	return info, err
}

// MoveFile implements sdk.Files.
func (p *Provider) MoveFile(ctx context.Context, req sdk.MoveFileRequest) (info sdk.FileInfo, err error) {
	is, err := p.onVolume(ctx, req.InstanceID, func(files *localfiles.Files) (err error) {
		info, err = files.MoveFile(ctx, req)
		return err
	})
	if !is {
		return p.Calls.MoveFile(ctx, req)
	}
	return info, err
}

// CopyFile implements sdk.Files.
func (p *Provider) CopyFile(ctx context.Context, req sdk.MoveFileRequest) (info sdk.FileInfo, err error) {
	is, err := p.onVolume(ctx, req.InstanceID, func(files *localfiles.Files) (err error) {
		info, err = files.CopyFile(ctx, req)
		return err
	})
	if !is {
		return p.Calls.CopyFile(ctx, req)
	}
	return info, err
}

// RemoveFile implements sdk.Files.
func (p *Provider) RemoveFile(ctx context.Context, id, path string, recursive bool) error {
	is, err := p.onVolume(ctx, id, func(files *localfiles.Files) error { return files.RemoveFile(ctx, id, path, recursive) })
	if !is {
		return p.Calls.RemoveFile(ctx, id, path, recursive)
	}
	return err
}

// SearchFiles implements sdk.FileSearcher.
func (p *Provider) SearchFiles(ctx context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (truncated bool, err error) {
	is, err := p.onVolume(ctx, req.InstanceID, func(files *localfiles.Files) (err error) {
		truncated, err = files.SearchFiles(ctx, req, found)
		return err
	})
	if !is {
		return p.Calls.SearchFiles(ctx, req, found)
	}
	return truncated, err
}

// ReplaceInFiles implements sdk.FileSearcher.
func (p *Provider) ReplaceInFiles(ctx context.Context, req sdk.ReplaceInFilesRequest) (replaced []sdk.FileReplacement, err error) {
	is, err := p.onVolume(ctx, req.InstanceID, func(files *localfiles.Files) (err error) {
		replaced, err = files.ReplaceInFiles(ctx, req)
		return err
	})
	if !is {
		return p.Calls.ReplaceInFiles(ctx, req)
	}
	return replaced, err
}

// SetFileMode implements sdk.FileModeSetter.
func (p *Provider) SetFileMode(ctx context.Context, id, path string, mode fs.FileMode) (info sdk.FileInfo, err error) {
	is, err := p.onVolume(ctx, id, func(files *localfiles.Files) (err error) {
		info, err = files.SetFileMode(ctx, id, path, mode)
		return err
	})
	if !is {
		return p.Calls.SetFileMode(ctx, id, path, mode)
	}
	return info, err
}

// ReadArchive implements sdk.Archiver.
func (p *Provider) ReadArchive(ctx context.Context, req sdk.ReadArchiveRequest) (io.ReadCloser, error) {
	if !volumes.Owns(req.InstanceID) {
		return p.Calls.ReadArchive(ctx, req)
	}
	return p.readVolume(ctx, req.InstanceID, func(files *localfiles.Files) (io.ReadCloser, error) { return files.ReadArchive(ctx, req) })
}

// WriteArchive implements sdk.Archiver.
func (p *Provider) WriteArchive(ctx context.Context, id, directory string, content io.Reader) (summary sdk.ArchiveSummary, err error) {
	is, err := p.onVolume(ctx, id, func(files *localfiles.Files) (err error) {
		summary, err = files.WriteArchive(ctx, id, directory, content)
		return err
	})
	if !is {
		return p.Calls.WriteArchive(ctx, id, directory, content)
	}
	return summary, err
}
