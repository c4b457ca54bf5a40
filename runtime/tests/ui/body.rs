struct Server;

impl Server {
    // The body is an item of its own, which the documentation of the macro mentions.
    #[runtime::main]
    async fn start() -> Self {
        Server
    }
}

#[runtime::main]
async fn main() {
    let number: u32 = missing;
    let server: Server = Server::start();
    server.missing();
}
