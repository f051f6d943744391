# nix run .
{
  description = "Keeps MCP sessions alive on behalf of processes that do not";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixpkgs-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      package =
        system:
        let
          pkgs = nixpkgs.legacyPackages.${system};
        in
        pkgs.rustPlatform.buildRustPackage {
          pname = "mcp-sessiond";
          version = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package.version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          cargoBuildFlags = [ "--package" "mcp-sessiond" ];
          buildFeatures = [ "dynamodb" ];
          # They start daemons, and want programs of their own: see tests/run.
          doCheck = false;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = pkgs.lib.optionalString (pkgs.stdenv.buildPlatform.canExecute pkgs.stdenv.hostPlatform) ''
            installShellCompletion --cmd mcp-sessiond \
              --bash <($out/bin/mcp-sessiond completions bash) \
              --fish <($out/bin/mcp-sessiond completions fish) \
              --zsh <($out/bin/mcp-sessiond completions zsh)
          '';
          meta = {
            description = "Keeps MCP sessions alive on behalf of processes that do not";
            license = pkgs.lib.licenses.mit;
            mainProgram = "mcp-sessiond";
            platforms = systems;
          };
        };
    in
    {
      packages = nixpkgs.lib.genAttrs systems (system: { default = package system; });
    };
}
