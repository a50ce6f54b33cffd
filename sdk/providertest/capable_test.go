package providertest_test

import (
	"context"
	"io"
	"io/fs"
	"net"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// capable is the provider with calls of its capabilities changed.
type capable struct {
	*local.Provider
	create        func(context.Context, sdk.CreateRequest) (sdk.Instance, error)
	interrupt     func(context.Context, string, string) error
	createContext func(context.Context, sdk.CreateContextRequest) (sdk.CodeContext, error)
	restart       func(context.Context, string, string) error
	deleteContext func(context.Context, string, string) error
	start         func(context.Context, sdk.CommandRequest) (sdk.Command, error)
	read          func(context.Context, sdk.ReadCommandRequest, func(sdk.CommandOutput) error) (sdk.Command, error)
	write         func(context.Context, string, string, []byte, bool) error
	signal        func(context.Context, string, string, string) error
	listCommands  func([]sdk.Command) []sdk.Command
	stat          func(sdk.FileInfo, error) (sdk.FileInfo, error)
	listFiles     func(context.Context, sdk.ListFilesRequest, func([]sdk.FileInfo) error) (bool, error)
	readFile      func(context.Context, sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error)
	writeFile     func(context.Context, sdk.WriteFileRequest, io.Reader) (sdk.FileInfo, error)
	move          func(context.Context, sdk.MoveFileRequest) (sdk.FileInfo, error)
	remove        func(context.Context, string, string, bool) error
	makeDirectory func(context.Context, string, string, fs.FileMode) (sdk.FileInfo, error)
	setMode       func(context.Context, string, string, fs.FileMode) (sdk.FileInfo, error)
	search        func(context.Context, sdk.SearchFilesRequest, func([]sdk.FileMatch) error) (bool, error)
	replace       func([]sdk.FileReplacement) []sdk.FileReplacement
	watch         func(context.Context, sdk.WatchFilesRequest, func() error, func([]sdk.FileChange) error) error
	unpack        func(context.Context, string, string, io.Reader) (sdk.ArchiveSummary, error)
	pack          func(context.Context, sdk.ReadArchiveRequest) (io.ReadCloser, error)
	dial          func(context.Context, string, uint16) (net.Conn, error)
	pause         func(context.Context, string) error
	released      func() bool
	setTTL        func(context.Context, string, time.Duration) (time.Time, error)
	meter         func(sdk.InstanceMetrics) sdk.InstanceMetrics
	setNetwork    func(context.Context, string, sdk.NetworkPolicy) error
	follow        func(context.Context, func(sdk.NetworkReport) error) error
	install       func(context.Context, sdk.InstallPackagesRequest, sdk.Output) (sdk.ExecuteResult, error)
	execute       func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error)
	createVolume  func(context.Context, sdk.CreateVolumeRequest) (sdk.Volume, error)
	deleteVolume  func(context.Context, string) error
	listVolumes   func([]sdk.Volume) []sdk.Volume
}

func changing(change func(*capable)) func(*local.Provider) sdk.Provider {
	return func(p *local.Provider) sdk.Provider {
		c := &capable{
			Provider: p, create: p.Create, interrupt: p.Interrupt, createContext: p.CreateContext, restart: p.RestartContext, deleteContext: p.DeleteContext,
			start: p.StartCommand, read: p.ReadCommand, write: p.WriteCommand, signal: p.SignalCommand,
			listCommands: func(list []sdk.Command) []sdk.Command { return list },
			stat:         func(info sdk.FileInfo, err error) (sdk.FileInfo, error) { return info, err },
			listFiles:    p.ListFiles, readFile: p.ReadFile, writeFile: p.WriteFile, move: p.MoveFile, remove: p.RemoveFile, makeDirectory: p.MakeDirectory,
			setMode: p.SetFileMode, search: p.SearchFiles, replace: func(r []sdk.FileReplacement) []sdk.FileReplacement { return r }, watch: p.WatchFiles, unpack: p.WriteArchive, pack: p.ReadArchive,
			dial: p.DialPort, pause: p.Pause, released: func() bool { return false }, setTTL: p.SetTTL, meter: func(m sdk.InstanceMetrics) sdk.InstanceMetrics { return m }, install: p.InstallPackages, setNetwork: p.SetNetwork, follow: p.FollowNetwork, execute: p.Execute,
			createVolume: p.CreateVolume, deleteVolume: p.DeleteVolume, listVolumes: func(list []sdk.Volume) []sdk.Volume { return list },
		}
		change(c)
		return c
	}
}

func (c *capable) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	return c.create(ctx, req)
}

func (c *capable) SetNetwork(ctx context.Context, id string, policy sdk.NetworkPolicy) error {
	return c.setNetwork(ctx, id, policy)
}

func (c *capable) FollowNetwork(ctx context.Context, report func(sdk.NetworkReport) error) error {
	return c.follow(ctx, report)
}

func (c *capable) Interrupt(ctx context.Context, id, execution string) error {
	return c.interrupt(ctx, id, execution)
}

func (c *capable) CreateContext(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
	return c.createContext(ctx, req)
}

func (c *capable) RestartContext(ctx context.Context, id, name string) error {
	return c.restart(ctx, id, name)
}

func (c *capable) DeleteContext(ctx context.Context, id, name string) error {
	return c.deleteContext(ctx, id, name)
}

func (c *capable) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	return c.start(ctx, req)
}

func (c *capable) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	return c.read(ctx, req, out)
}

func (c *capable) WriteCommand(ctx context.Context, id, command string, data []byte, end bool) error {
	return c.write(ctx, id, command, data, end)
}

func (c *capable) SignalCommand(ctx context.Context, id, command, name string) error {
	return c.signal(ctx, id, command, name)
}

func (c *capable) ListCommands(ctx context.Context, id string) ([]sdk.Command, error) {
	list, err := c.Provider.ListCommands(ctx, id)
	return c.listCommands(list), err
}

func (c *capable) StatFile(ctx context.Context, id, path string) (sdk.FileInfo, error) {
	return c.stat(c.Provider.StatFile(ctx, id, path))
}

func (c *capable) ListFiles(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (bool, error) {
	return c.listFiles(ctx, req, found)
}

func (c *capable) ReadFile(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	return c.readFile(ctx, req)
}

func (c *capable) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	return c.writeFile(ctx, req, content)
}

func (c *capable) MoveFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return c.move(ctx, req)
}

func (c *capable) RemoveFile(ctx context.Context, id, path string, recursive bool) error {
	return c.remove(ctx, id, path, recursive)
}

func (c *capable) MakeDirectory(ctx context.Context, id, path string, mode fs.FileMode) (sdk.FileInfo, error) {
	return c.makeDirectory(ctx, id, path, mode)
}

func (c *capable) SetFileMode(ctx context.Context, id, path string, mode fs.FileMode) (sdk.FileInfo, error) {
	return c.setMode(ctx, id, path, mode)
}

func (c *capable) SearchFiles(ctx context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (bool, error) {
	return c.search(ctx, req, found)
}

func (c *capable) ReplaceInFiles(ctx context.Context, req sdk.ReplaceInFilesRequest) ([]sdk.FileReplacement, error) {
	replaced, err := c.Provider.ReplaceInFiles(ctx, req)
	return c.replace(replaced), err
}

func (c *capable) WatchFiles(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, changed func([]sdk.FileChange) error) error {
	return c.watch(ctx, req, ready, changed)
}

func (c *capable) WriteArchive(ctx context.Context, id, directory string, content io.Reader) (sdk.ArchiveSummary, error) {
	return c.unpack(ctx, id, directory, content)
}

func (c *capable) ReadArchive(ctx context.Context, req sdk.ReadArchiveRequest) (io.ReadCloser, error) {
	return c.pack(ctx, req)
}

func (c *capable) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	return c.dial(ctx, id, port)
}

func (c *capable) Pause(ctx context.Context, id string) error { return c.pause(ctx, id) }

func (c *capable) PauseReleasing(ctx context.Context, id string) (bool, error) {
	return c.released(), c.pause(ctx, id)
}

func (c *capable) SetTTL(ctx context.Context, id string, ttl time.Duration) (time.Time, error) {
	return c.setTTL(ctx, id, ttl)
}

func (c *capable) InstanceMetrics(ctx context.Context, id string) (sdk.InstanceMetrics, error) {
	m, err := c.Provider.InstanceMetrics(ctx, id)
	return c.meter(m), err
}

func (c *capable) InstallPackages(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	return c.install(ctx, req, out)
}

func (c *capable) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	return c.execute(ctx, req, out)
}

func (c *capable) CreateVolume(ctx context.Context, req sdk.CreateVolumeRequest) (sdk.Volume, error) {
	return c.createVolume(ctx, req)
}

func (c *capable) DeleteVolume(ctx context.Context, id string) error { return c.deleteVolume(ctx, id) }

func (c *capable) ListVolumes(ctx context.Context) ([]sdk.Volume, error) {
	list, err := c.Provider.ListVolumes(ctx)
	return c.listVolumes(list), err
}
