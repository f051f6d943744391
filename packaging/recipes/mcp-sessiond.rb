# For a tap of Homebrew: Formula/mcp-sessiond.rb. Linux gets the static executable; a Mac builds the sources.
class McpSessiond < Formula
  desc "Keeps MCP sessions alive on behalf of processes that do not"
  homepage "@ADDRESS@"
  version "@VERSION@"
  license "MIT"

  on_macos do
    url "@ADDRESS@/releases/download/v@VERSION@/mcp-sessiond-@VERSION@-source.tar.gz"
    sha256 "@SHA256 source@"
    depends_on "rust" => :build
  end

  on_linux do
    on_intel do
      url "@ADDRESS@/releases/download/v@VERSION@/mcp-sessiond-@VERSION@-x86_64-linux.tar.gz"
      sha256 "@SHA256 x86_64-linux@"
    end
    on_arm do
      url "@ADDRESS@/releases/download/v@VERSION@/mcp-sessiond-@VERSION@-aarch64-linux.tar.gz"
      sha256 "@SHA256 aarch64-linux@"
    end
  end

  def install
    if OS.mac?
      system "cargo", "install", *std_cargo_args(path: ".", features: "dynamodb")
    else
      bin.install "mcp-sessiond"
    end
    generate_completions_from_executable(bin/"mcp-sessiond", "completions", shells: [:bash, :zsh, :fish])
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/mcp-sessiond --version")
    system bin/"mcp-sessiond", "demo"
  end
end
