//! `sample-gateway`: a payment gateway to try flash-sale with. No money moves.

use std::path::PathBuf;

use clap::Parser;
use sample_gateway::{Faults, Sample, Settings};
use tokio::net::TcpListener;

/// A payment gateway to try flash-sale with: no money moves
#[derive(Parser)]
struct Arguments {
    /// Address of the gateway
    #[arg(long, default_value = "127.0.0.1:8090")]
    listen: String,
    /// URL of the shop's callback
    #[arg(long, default_value = "http://127.0.0.1:8080/v1/payments/callback")]
    callback_url: String,
    /// Secret that the shop has as --payment-callback-secret
    #[arg(long, env = "FLASH_SALE_PAYMENT_CALLBACK_SECRET", hide_env_values = true)]
    secret: String,
    /// File with the gateway's books; without it they are gone with the gateway
    #[arg(long)]
    books: Option<PathBuf>,
    #[command(flatten)]
    faults: Faults,
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let Arguments { listen, callback_url, secret, books, faults } = Arguments::parse();
    let listener = TcpListener::bind(&listen).await?;
    let sample = Sample::start(listener, Settings { secret, callback_url, books, faults })?;
    println!(
        "A sample gateway takes requests at {}; no money moves. Ctrl-C stops it.",
        sample.url()
    );
    tokio::signal::ctrl_c().await?;
    sample.stop().await;
    Ok(())
}
